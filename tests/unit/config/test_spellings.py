"""Keys that were misspelt, put elsewhere, or called as other toolkits call them."""

from __future__ import annotations

import pytest

from catchline.config.base import validate
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, TOKENIZERS, check_run, resolve
from catchline.config.schema import RunConfig, SearchConfig
from catchline.config.spellings import SPELLINGS, place_of_key
from catchline.errors import ConfigError


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("learning_rate", "training.optimizer.learning_rate"),
        ("training.learning_rate", "training.optimizer.learning_rate"),
        ("training.learning-rat", "training.optimizer.learning_rate"),
        ("training.max_epoch", "training.max_epochs"),
        ("epochs", "training.max_epochs"),
        ("batch_size", "training.batch_size"),
        ("num_beams", "search.beam_size"),
        ("search.num_beams", "search.beam_size"),
        ("max_new_tokens", "search.max_length"),
        ("length_penalty", "search.length_normalisation"),
        ("per_device_train_batch_size", "training.batch_size"),
        ("accum_count", "training.accumulation"),
        ("src_seq_length", "text.max_source_tokens"),
        ("model.rnn_size", "model.hidden_size"),
        ("rnn_size", "model.hidden_size"),
        ("hidden_size", "model.hidden_size"),
        ("coverage", "model.attention.coverage"),
        ("vocab_size", "text.tokenizer.max_vocabulary"),
    ],
)
def test_what_was_meant(key: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_run(resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "tiny", [f"{key}=1"]))
    assert f"Did you mean '{meant}'?" in str(caught.value)


def test_layers_are_those_of_the_model_at_hand() -> None:
    for recipe, meant in (("contrastive", "model.encoder_layers"), ("coarse_to_fine", "model.layers")):
        with pytest.raises(ConfigError, match=f"Did you mean '{meant}'"):
            resolve_run(load_recipe(recipe), None, "tiny", ["enc_layers=1"])
    assert place_of_key("enc_layers", RunConfig, []) == place_of_key("zzz", RunConfig, []) == "", "no hint"


def test_a_section_alone_is_named_without_its_section() -> None:
    with pytest.raises(ConfigError, match=r"'search.num_beams'. Did you mean 'beam_size'"):
        validate(SearchConfig, {"num_beams": 3}, where="search")


def test_every_place_of_the_table_exists() -> None:
    configs = [resolve("model", MODELS, name).Config for name in MODELS if name != "bart"]
    tokenizers = [resolve("tokenizer", TOKENIZERS, name).Config for name in TOKENIZERS]
    model = {f"model.{key}" for config in configs for key in config.model_fields}
    text = {f"text.tokenizer.{key}" for config in tokenizers for key in config.model_fields}
    parts = {"model.attention.type", "model.head.type", "model.attention.coverage"}
    for name, targets in SPELLINGS.items():
        for target in targets:
            if target in model | text | parts:
                continue
            section = RunConfig
            for part in target.split("."):
                assert part in section.model_fields, (name, target)
                section = section.model_fields[part].annotation  # type: ignore[assignment]


@pytest.mark.parametrize("given", ["ngram_blocking", {"type": "ngram_blocking"}, ["ngram_blocking"]])
def test_scorers_in_another_form_are_told_theirs(given: object) -> None:
    with pytest.raises(
        ConfigError, match=r"'search\.scorers': takes a list .*scorers=\[\{type: ngram_blocking, size: 3\}\]"
    ):
        validate(SearchConfig, {"scorers": given}, where="search")
    form = {"scorers": [{"type": "ngram_blocking", "size": 3}]}
    assert validate(SearchConfig, form, where="search").scorers == tuple(form["scorers"])
