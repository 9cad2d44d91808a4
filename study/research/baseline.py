"""Record what a checkout writes, computes and costs, so that later code can be compared with it.

    python study/research/baseline.py --checkout DIR --python DIR/.venv/bin/python [--package catchline] [--parts words]

* ``words``: the bundled model with ``--always-write`` on validation records: ROUGE and, compressed, the lines.
* ``models``: every row of every recipe at size tiny, in float64 without dropout: the loss, norm and fingerprint of the
  gradients (their product with fixed random numbers) and the ids that search writes. ``fresh`` weights depend on the
  order of initialisation, ``filled`` ones on the names of parameters alone. Extractive rows: the picks.
* ``search``: every row through the public interface: losses of two updates, lines for three texts, words' sources.

Only `Adapter` knows the package: it finds a name where it is defined now. Change it when a name changes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
import zlib
from pathlib import Path
from typing import Any

DATA = {"arxiv": 600, "debian": 600, "readmes": None}
TEXTS = [
    "The river rose two metres in a single night. The people of three villages had to leave their houses. Nobody was "
    "hurt, said mayor Anna Kowalczyk. Helpers filled 4,000 sandbags until the morning. The water fell on Tuesday.",
    "We present a parser for network traces. It reads pcap files of any size in constant memory. A trace of 12 GB took "
    "90 seconds on one core. The parser is written in Zig and released under the MIT licence.",
    "The committee met in Graz on Friday. It elected Joao Pereira as its chair. The budget for 2025 was not discussed. "
    "Members asked for a report on the new library. The next meeting is in Linz, and the report is due by then.",
]
PAD, UNK, BOS, EOS, VOCABULARY = 0, 1, 2, 3, 40
IDS = {"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS}


class Adapter:
    """The package's names, wherever they are defined now."""

    def __init__(self, package: str, source: Path) -> None:
        self._files = {path: path.read_text(encoding="utf-8") for path in sorted((source / package).rglob("*.py"))}
        self._source = source

    def __getattr__(self, name: str) -> Any:
        defined = re.compile(rf"^(def|class) {name}\b|^{name}\b[^=\n]*=", re.MULTILINE)
        # of several, that of the settings: the search over arrays has a decode too, which wants the torch one first
        paths = sorted((path for path, text in self._files.items() if defined.search(text)), key=self._order)
        if not paths:
            raise LookupError(f"nothing defines {name}: name what took its place in {__file__}")
        module = ".".join(paths[0].relative_to(self._source).with_suffix("").parts)
        return getattr(importlib.import_module(module), name)

    def _order(self, path: Path) -> tuple[bool, bool]:
        return "import torch" not in self._files[path] and "config" not in path.parts, "study" in path.parts

    def runs(self) -> dict[str, Any]:
        """Every row at size tiny: the run of a model, the settings of an extractive method."""
        found = {}
        for name in self.recipe_names():
            recipe = self.load_recipe(name)
            for row in recipe.rows:
                of_methods = bool(recipe.extractive)
                resolve = self.resolve_method if of_methods else self.resolve_run
                found[f"{name}:{row}"] = resolve(recipe, row, "small" if of_methods else "tiny")
        return found

    def model(self, run: Any) -> Any:
        return self.build("model", self.MODELS, run.model, vocab_size=VOCABULARY, **IDS)

    def loss(self, model: Any, run: Any, batch: Any) -> Any:
        """The sum of the run's objectives, with the weights of its settings."""
        objectives = [self.build("objective", self.OBJECTIVES, spec) for spec in run.objectives]
        context = self.UpdateContext(noise_seed=1)
        for objective in objectives:
            objective.to(dtype=next(model.parameters()).dtype)
            getattr(objective, "attach", lambda *_: None)(model, None, run)
            context = objective.wants(batch, context)
        output = model(batch, context=context)
        for objective in objectives:
            if objective.looks_ahead:
                objective.see(output, batch)
                objective.seen()
        terms = [objective(output, batch, context) for objective in objectives]
        return sum(term.weight * term.sum / term.count for term in terms)

    def written(self, model: Any, run: Any, batch: Any) -> list[list[int]]:
        return [list(map(int, best[0].ids)) for best in self.decode(model, batch, run.search, **IDS)]

    def batch(self) -> Any:
        """Three pairs with repeated words, words outside the vocabulary, and padding."""
        import torch

        a, b = VOCABULARY, VOCABULARY + 1
        sources = [[4, a, b, 5, 4, 17, 30, 6, 4], [7, a, b, 22, 5, 5], [6, a, 4]]
        targets = [[4, 17, a, UNK, 33, EOS], [b, 5, 12, EOS], [a, EOS]]

        def padded(rows: list[list[int]]) -> Any:
            width = max(map(len, rows))
            return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])

        extended, gold = padded(sources), padded(targets)
        inputs = torch.cat([torch.full((len(gold), 1), BOS), gold[:, :-1]], dim=1)
        mask = padded([[1] * len(row) for row in targets]).bool()
        return self.TrainingBatch(
            source_ids=extended.masked_fill(extended >= VOCABULARY, UNK),
            source_extended_ids=extended,
            source_mask=padded([[1] * len(row) for row in sources]).bool(),
            extended_vocab_size=VOCABULARY + 2,
            oov_words=[["Anna", "Graz"], ["Anna", "Graz"], ["Anna"]],
            target_input_ids=inputs.masked_fill(inputs >= VOCABULARY, UNK).masked_fill(~mask, PAD),
            target_ids=gold,
            target_mask=mask,
        )


def noise(name: str, shape: Any) -> Any:
    """Numbers in [-1, 1) that depend on a name alone."""
    import torch

    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    return 2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1


def gradients(adapter: Adapter, model: Any, run: Any, batch: Any) -> dict[str, Any]:
    """Loss, norm, fingerprint and digest (of six digits a parameter) of the gradients."""
    import torch

    torch.manual_seed(1)
    model.zero_grad()
    loss = adapter.loss(model, run, batch)
    loss.backward()
    present = {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}
    digest = "".join(f"{name} {float(grad.norm()):.6g}\n" for name, grad in sorted(present.items()))
    return {
        "loss": float(loss.detach()),
        "norm": sum(float(grad.square().sum()) for grad in present.values()) ** 0.5,
        "fingerprint": sum(float((grad * noise("grad " + name, grad.shape)).sum()) for name, grad in present.items()),
        "digest": hashlib.sha256(digest.encode()).hexdigest()[:16],
    }


def row_figures(adapter: Adapter, run: Any) -> dict[str, Any]:
    import torch

    if isinstance(run, dict):
        method = adapter.build("extractive method", adapter.EXTRACTIVE, run)
        more = {"references": ["The river rose and people left their houses."]} if method.needs_reference else {}
        return {"picks": [list(map(int, method.summarize(text, **more))) for text in TEXTS]}
    batch = adapter.batch()
    torch.manual_seed(0)
    model = adapter.model(run).double().eval()
    shapes = "".join(f"{name} {tuple(value.shape)}\n" for name, value in sorted(model.state_dict().items()))
    found: dict[str, Any] = {"weights": hashlib.sha256(shapes.encode()).hexdigest()[:16], "tensors": shapes.count("\n")}
    found["fresh"] = gradients(adapter, model, run, batch)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(0.5 * noise(name, parameter.shape))
    return found | {"filled": gradients(adapter, model, run, batch), "written": adapter.written(model, run, batch)}


def models(options: argparse.Namespace) -> dict[str, Any]:
    adapter = Adapter(options.package, options.checkout / "src")
    found: dict[str, Any] = {}
    for name, run in adapter.runs().items():
        try:
            found[name] = row_figures(adapter, run)
        except Exception:
            found[name] = {"error": traceback.format_exc()[-1500:]}
        print(name, json.dumps(found[name])[:160], flush=True)
    return {"rows": found}


def command(options: argparse.Namespace, *arguments: Any) -> str:
    """What ``PACKAGE ARGUMENTS`` prints."""
    words = [sys.executable, "-m", options.package, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=options.checkout, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}\n{done.stderr[-1500:]}")
    return done.stdout


def written_to(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def words(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, most in DATA.items():
            packed = options.data / name / "validation.jsonl.zst"
            lines = subprocess.run(["zstd", "-dc", packed], capture_output=True, check=True, text=True).stdout
            records = [json.loads(line) for line in lines.splitlines()][:most]
            documents = [json.dumps({"document": record["document"]}) for record in records]
            source = written_to(Path(folder, "texts.jsonl"), documents)
            printed = command(options, "summarize", options.model, source, "--always-write", "--json").splitlines()
            written = [" ".join(json.loads(line)["summary"].split()) for line in printed]
            wanted = [" ".join(record["summary"].split()) for record in records]
            sides = [written_to(Path(folder, side), lines) for side, lines in (("is", written), ("wanted", wanted))]
            scores = json.loads(command(options, "rouge", *sides, "--profile", "rouge155", "--json"))
            found[name] = {"records": len(records), "scores": scores}
            with gzip.GzipFile(options.out / f"lines-{name}.txt.gz", "wb", mtime=0) as file:
                file.write(("\n".join(written) + "\n").encode())
            print(name, json.dumps(scores)[:300], flush=True)
    return found


def search(options: argparse.Namespace) -> dict[str, Any]:
    package, adapter = importlib.import_module(options.package), Adapter(options.package, options.checkout / "src")
    found: dict[str, Any] = {}
    pairs = [{"document": text, "summary": text.split(". ")[n % 3] + "."} for n in range(8) for text in TEXTS]
    settings = {"training.max_updates": 2, "training.log_every": 1, "training.seed": 1, "pretraining.enabled": False}
    with tempfile.TemporaryDirectory() as folder:
        corpus = written_to(Path(folder, "train.jsonl"), list(map(json.dumps, pairs)))
        for name in [name for name, run in adapter.runs().items() if not isinstance(run, dict)]:
            (recipe, row), out = name.split(":"), Path(folder, name.replace(":", "-"))
            given = {"row": row, "size": "tiny", "settings": settings, "all_pairs": True, "on_message": str}
            try:
                result = package.train(recipe, corpus, out, **given)
                entries = map(json.loads, (out / "log.jsonl").read_text(encoding="utf-8").splitlines())
                summarizer = package.Summarizer.from_pretrained(result.model_folder)
                summaries = summarizer.summarize(TEXTS, explain=True, always_write=True, min_length=8, max_length=12)
                sources = [[[span.text for span in word.sources] for word in one.words] for one in summaries]
                found[name] = {
                    "losses": [entry["loss"] for entry in entries if "loss" in entry],
                    "lines": [one.text for one in summaries],
                    "sources": hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:16],
                }
            except Exception:
                found[name] = {"error": traceback.format_exc()[-1500:]}
            print(name, json.dumps(found[name])[:200], flush=True)
    return {"rows": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkout", type=Path, default=Path())
    parser.add_argument("--python", type=Path, help="of the environment that the checkout is installed in")
    parser.add_argument("--package", default="catchline")
    parser.add_argument("--model", default="oneline", help="the bundled model's name")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "baseline")
    parser.add_argument("--parts", default="words,models,search")
    options = parser.parse_args()
    source = str(options.checkout.resolve() / "src")
    if options.python and source not in os.environ.get("PYTHONPATH", "").split(":"):
        environment = os.environ | {"PYTHONPATH": source, "HF_HUB_OFFLINE": "1"}
        os.execve(options.python, [str(options.python), __file__, *sys.argv[1:]], environment)
    for name in ("checkout", "data", "out"):
        setattr(options, name, getattr(options, name).resolve())
    options.out.mkdir(parents=True, exist_ok=True)
    for part in options.parts.split(","):
        content = {"words": words, "models": models, "search": search}[part](options)
        (options.out / f"{part}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
