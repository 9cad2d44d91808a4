"""What a recipe may say. Its groups of settings are frozen, unknown keys are refused, each default lives here once.

Groups whose content depends on a class (model, tokenizer, objectives, scorers) are dictionaries with
a ``type``; the class's own ``Config`` validates the rest when it is built (`catchline.config.names`).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from catchline.config.base import ConfigBase

Spec = dict[str, Any]  # {"type": name, **options}
Surface = Literal["tokens", "raw", "cased", "clean"]
Share = Annotated[float, Field(ge=0, lt=1)]
# those that accelerate knows
Tracker = Literal["aim", "clearml", "comet_ml", "dvclive", "mlflow", "swanlab", "tensorboard", "trackio", "wandb"]
LONGEST = 100_000  # tokens that search writes
SPLITS = ("train", "validation", "test")


class DataConfig(ConfigBase):
    """Where the pairs are and how to read them. ``strip_publication_suffix`` cuts " - The New York Times" and the like
    off summaries, which a headline's site has added."""

    train: str | None = None
    validation: str | None = None
    test: str | None = None
    format: str = "auto"
    document_column: str | None = None
    summary_column: str | None = None
    skip_bad: bool = False
    strip_publication_suffix: bool = False
    min_supported: float = Field(0.0, ge=0, le=1)  # training pairs: share of the summary's words the source must hold
    max_document_tokens: int | None = Field(None, ge=1)  # longer documents are left out of training and validation
    min_human_score: int | None = Field(None, ge=1, le=5)  # LCSTS parts II and III: pairs that people rated lower go


class TextConfig(ConfigBase):
    """Tokenization and truncation, in tokens. ``source_specials`` wraps the source in BOS and EOS; ``end`` appends EOS.
    ``sentence_separator`` is a word, such as ``<EOS>``, that stands between the sentences of documents and summaries as
    the model reads them. ``vocabulary_from`` says on which side of the training pairs the tokenizer is trained."""

    tokenizer: Spec = Field(default_factory=lambda: {"type": "word"})
    vocabulary_from: Literal["both", "documents"] = "both"
    sentence_separator: str | None = Field(None, pattern=r"^\S+$")
    max_source_tokens: int = Field(400, ge=1)
    max_target_tokens: int = Field(100, ge=1)
    source_specials: bool | Literal["end"] = False
    eos_on_truncation: bool = True
    oov_copy: Literal["extended", "unk"] = "extended"
    pretrained_embeddings: str | None = None


class OptimizerConfig(ConfigBase):
    """torch's own. Adadelta's decay is 0.95, and its usual learning rate 1.0; Adagrad's accumulators start at 0.1."""

    type: Literal["adam", "adamw", "adagrad", "adadelta", "sgd"] = "adam"
    learning_rate: float = Field(1e-3, gt=0, le=1000)
    weight_decay: float = Field(0.0, ge=0, le=1)
    betas: tuple[Share, Share] = (0.9, 0.999)
    epsilon: float = Field(1e-8, gt=0, le=1)
    # patterns of parameters' names (fnmatch), and how many times as fast these learn; the first that matches counts
    rates: tuple[tuple[str, Annotated[float, Field(gt=0, le=1000)]], ...] = ()


class ScheduleConfig(ConfigBase):
    """The learning rate's factor over updates. ``linear`` falls to 0. ``plateau`` is halved after two
    validations without improvement; ``sticky`` at every validation from the first that is worse than the one before."""

    type: Literal["constant", "linear", "inverse_sqrt", "plateau", "sticky"] = "constant"
    warmup_updates: int = Field(0, ge=0)
    warmup_start: float = Field(0.0, ge=0, le=1)  # the factor before the first update; it rises linearly to 1


class TeacherForcingConfig(ConfigBase):
    """How often the decoder reads the gold token (Headline Writer, section 3.3.4): with probability ``ratio``.
    ``scope`` is what shares one draw, ``feed`` what is read otherwise."""

    ratio: float = Field(1.0, ge=0, le=1)
    scope: Literal["step", "example_step", "sequence"] = "step"
    feed: Literal["argmax", "sample"] = "argmax"


class PhaseConfig(ConfigBase):
    """A stretch of training with its own settings; what is not named keeps its value. ``until`` is the update at which
    it ends, ``until_epoch`` the pass over the data (neither: the last phase); ``model`` has switches of the model."""

    name: str
    until: int | None = Field(None, ge=1)
    until_epoch: int | None = Field(None, ge=1)
    max_source_tokens: int | None = Field(None, ge=1)
    max_target_tokens: int | None = Field(None, ge=1)
    model: dict[str, Any] = Field(default_factory=dict)
    reset_optimizer: bool = False


class ValidationConfig(ConfigBase):
    """``every_updates`` none means at each epoch's end. ``metric`` is what best and early stopping watch."""

    every_updates: int | None = Field(None, ge=1)
    metric: Literal["val_loss_tf", "val_loss_free", "rouge1", "rouge2", "rougeL"] = "val_loss_tf"
    decode_records: int = Field(0, ge=0)


class CheckpointConfig(ConfigBase):
    every_updates: int | None = Field(None, ge=1)  # none: at each epoch's end
    keep: int = Field(2, ge=1)


class TrainingConfig(ConfigBase):
    """The loop. It ends at whichever of ``max_updates``, ``max_epochs``, ``max_minutes`` comes first.

    ``batching``: ``bucket`` sorts by length within random pools of 100 batches; ``sorted`` sorts all documents once, so
    the batches stay and only their order is random. ``batch_tokens`` cuts the sorted documents where the padded batch,
    its longer side, would hold more tokens; ``batch_size`` then counts for validation only. ``lora``: matrices of this
    rank are trained instead of the weights of a checkpoint.

    Each process of a launcher (`torchrun`) has batches of this size."""

    # What may change without making the continuation another run: where it ends.
    CHANGEABLE: ClassVar = ("max_updates", "max_epochs", "max_minutes")

    batch_size: int = Field(32, ge=1, le=1_000_000)
    batching: Literal["bucket", "sorted"] = "bucket"
    batch_tokens: int | None = Field(None, ge=1)
    accumulation: int = Field(1, ge=1, le=1_000_000)
    max_updates: int | None = Field(None, ge=1)
    max_epochs: int | None = Field(None, ge=1)
    max_minutes: float | None = Field(None, gt=0)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    clip_norm: float | None = Field(None, gt=0)
    seed: int = Field(1, ge=0)
    precision: Literal["fp32", "bf16"] = "fp32"
    teacher_forcing: TeacherForcingConfig = Field(default_factory=TeacherForcingConfig)
    phases: tuple[PhaseConfig, ...] = ()
    validation: ValidationConfig = Field(default_factory=ValidationConfig)
    early_stopping: int | None = Field(None, ge=1)  # validations without improvement; none: never
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    average_last: int = Field(0, ge=0)  # weight averaging: its horizon in updates; 0: none
    log_every: int = Field(20, ge=1)
    lora: int | None = Field(None, ge=1, le=1024)
    initial_weights: str | None = None  # a model folder, run folder or hub id whose weights and tokenizer are taken
    trackers: tuple[Tracker, ...] = ()

    @model_validator(mode="after")
    def _ends(self) -> TrainingConfig:
        if self.max_updates is None and self.max_epochs is None and self.max_minutes is None:
            raise ValueError("training never ends: set one of max_updates, max_epochs, max_minutes")
        return self


class PretrainingConfig(ConfigBase):
    """A stage before the training: the same model on other pairs, in the sub-folder ``pretraining`` of the run.
    ``data`` is a folder with train (and validation) files or one file, read with default options. ``set`` changes the
    run for the stage, as a row of a recipe does: keys of ``STAGE_SECTIONS``, nested or dotted. A run of which
    ``enabled`` is false has no stage, whatever else is set: one ``--set pretraining.data=DIR`` serves a whole recipe.
    """

    STAGE_SECTIONS: ClassVar = ("data", "text", "objectives", "training", "search")

    enabled: bool = False
    data: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> PretrainingConfig:
        for key in self.set:
            if key.partition(".")[0] not in self.STAGE_SECTIONS:
                known = ", ".join(self.STAGE_SECTIONS)
                raise ValueError(f"set: '{key}' is not among what a pre-training stage can change: {known}")
        return self


class DistractionTerms(ConfigBase):
    """Distraction in search: the weights of the three terms (`catchline.search.distraction`), all of any sign.
    ``attention``, ``context`` and ``state`` are lambda_1, lambda_2 and lambda_3 of Chen et al. (2016), equation 18."""

    attention: float = Field(0.0, ge=-1e6, le=1e6)
    context: float = Field(0.0, ge=-1e6, le=1e6)
    state: float = Field(0.0, ge=-1e6, le=1e6)
    variant: Literal["paper", "released"] = "paper"
    accumulate: bool = True  # false: the terms choose among the candidates of a step and are not carried on

    @property
    def active(self) -> bool:
        """Is any weight other than zero?"""
        return any((self.attention, self.context, self.state))


class LengthConfig(ConfigBase):
    """Bounds of the text that is shown (`catchline.text.render`): ``words``, the most or the least and the most
    (``5-12``), and the most ``characters`` and ``sentences``."""

    words: str | None = None
    characters: int | None = Field(None, ge=1)
    sentences: int | None = Field(None, ge=1)

    @field_validator("words", mode="before")
    @classmethod
    def _counted(cls, value: Any) -> Any:
        least, dash, most = (part.strip() for part in str(value).rpartition("-"))
        fits = most.isdecimal() and (least.isdecimal() or not dash) and int(least or 0) <= int(most) <= LONGEST
        if value is not None and not (fits and int(most)):
            raise ValueError("give a maximum, such as 12, or a minimum and a maximum, such as 5-12")
        return None if value is None else f"{int(least)}-{int(most)}" if least else str(int(most))


class SearchConfig(LengthConfig):
    """Decoding; docs/decoding.md says what each setting means. ``finish``, ``unfinished``, ``early_stopping`` and
    ``shrink_beam`` are rules of `catchline.search.beam`, lengths of `catchline.search.scorers`, ``replace_unk`` of
    `catchline.search.decode`, ``surface`` and ``capitals`` of `catchline.text.render`; ``model`` sets switches of the
    model while it decodes. ``faultless`` prefers the first hypothesis without repetition, and of whose names, numbers
    and dates the document lacks none."""

    long: Literal["truncate", "select", "parts"] = "truncate"  # what is read of a document beyond the model's limit
    beam_size: int = Field(1, ge=1, le=1000)
    num_return: int = Field(1, ge=1, le=1000)
    min_length: int = Field(0, ge=0, le=100_000)
    min_length_share: float | None = Field(0.33, gt=0, le=100_000)
    max_length: int = Field(50, ge=1, le=LONGEST)
    length_normalisation: Literal["none", "average", "predicted", "gnmt"] = "average"
    length_alpha: float = Field(1.0, ge=-10, le=10)
    no_repeat_ngram: int = Field(0, ge=0, le=100_000)
    no_repeat_word: bool = False  # no word twice, function words aside (vocabularies of whole words)
    forbid_unk: bool = True
    forbid_specials: bool = True
    replace_unk: Literal[False, "words", "argmax"] = False
    finish: Literal["see", "within_beam"] = "see"
    unfinished: Literal["drop", "compete", "force_end", "free_end"] = "force_end"
    early_stopping: Literal[True, False, "never"] = True
    shrink_beam: bool = False
    faultless: bool = False
    distraction: DistractionTerms | None = None
    scorers: tuple[Spec, ...] = ()
    model: dict[str, Any] = Field(default_factory=dict)
    surface: Surface = "clean"
    capitals: Literal["learnt", "sentence", "title", "lower"] = "learnt"

    @model_validator(mode="after")
    def _fits(self) -> SearchConfig:
        if self.num_return > self.beam_size:
            raise ValueError(f"num_return {self.num_return} is more than beam_size {self.beam_size}")
        if self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is more than max_length {self.max_length}")
        return self

    @property
    def num_steps(self) -> int:
        """The most steps of a search: where the end is forced, one follows the last word."""
        return self.max_length + (self.unfinished == "force_end" and not self.shrink_beam)


class EvaluationConfig(ConfigBase):
    """How summaries are scored. ``profile`` names a data set's usual way of scoring or a profile of
    ROUGE (`catchline.metrics.scoring`); ``rouge`` changes single options. ``restore_numbers`` replaces a written ``##``
    by a number of that length from the document before scoring. ``surface`` is scored instead of ``search.surface``:
    ``raw``, the words as the model wrote them; ``tokens``, with a blank between any two."""

    profile: str | None = None
    restore_numbers: bool = False
    surface: Surface | None = None
    rouge: Spec = Field(default_factory=dict)  # options of catchline.rouge


class RunConfig(ConfigBase):
    """One run, fully resolved: this is what is stored as ``recipe.yaml`` in the run and model folders."""

    name: str
    row: str = ""
    size: str = ""
    description: str = ""
    data: DataConfig = Field(default_factory=DataConfig)
    text: TextConfig = Field(default_factory=TextConfig)
    model: Spec
    objectives: tuple[Spec, ...] = Field(({"type": "nll"},), min_length=1)
    training: TrainingConfig
    pretraining: PretrainingConfig = Field(default_factory=PretrainingConfig)
    search: SearchConfig = Field(default_factory=SearchConfig)
    evaluation: EvaluationConfig = Field(default_factory=EvaluationConfig)
    published: dict[str, Any] = Field(default_factory=dict)

    @property
    def loss_unit(self) -> str:
        """What the likelihood is counted in, by its reduction."""
        likelihood = next((one for one in self.objectives if one.get("type") == "nll"), self.objectives[0])
        units = {"sentence": "nats per summary", "sum": "nats"}
        return units.get(likelihood.get("reduction", "token"), "nats per word")


class RowConfig(ConfigBase):
    """A named row of a paper's table: what it changes, or the extractive ``method``, and its published scores."""

    label: str
    set: dict[str, Any] = Field(default_factory=dict)
    method: Spec | None = None
    published: dict[str, Any] = Field(default_factory=dict)


class SizeConfig(ConfigBase):
    """A scale. ``rows`` adds changes for single rows at this scale."""

    description: str = ""
    set: dict[str, Any] = Field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = Field(default_factory=dict)


class Recipe(ConfigBase):
    """A paper's file. A run is the base, changed by the row, by the size, by the size's entry for the row, and last by
    the user's ``--set``. ``extractive_rows`` are methods in the same table (``lead-1``), each with its published
    scores. Where the rows themselves are methods there is no base, and sizes change the methods' options.
    ``published_note`` says where published figures are not simply the paper's."""

    name: str
    title: str
    description: str = ""
    citation: str = ""
    base: dict[str, Any] = Field(default_factory=dict)
    rows: dict[str, RowConfig] = Field(min_length=1)
    sizes: dict[str, SizeConfig] = Field(min_length=1)
    default_row: str
    default_size: str = "small"
    extractive_rows: dict[str, dict[str, Any]] = Field(default_factory=dict)
    published_note: str = ""

    @property
    def extractive(self) -> bool:
        """Are the rows extractive methods, with nothing to train?"""
        return all(row.method is not None for row in self.rows.values())

    @model_validator(mode="after")
    def _defaults(self) -> Recipe:
        for key, name, known in (("row", self.default_row, self.rows), ("size", self.default_size, self.sizes)):
            if name not in known:
                raise ValueError(f"default_{key} '{name}' is not among the {key}s: {', '.join(known)}")
        return self
