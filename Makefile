# `make demo` and `make test` need Python 3.11+ and nothing else: they make .venv and install what they need into it, the demo
# only the core. The stamp files make that happen once, and again when the pins change.
.DEFAULT_GOAL := help
.PHONY: help install browser demo demo-train docs model wheel test test-cpus test-plain test-floor test-slow test-all check bench bench-peers clean

PYTHON ?= python3
VENV := .venv
FLOOR := .venv-floor
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
USE := $(VENV)/.installed-use
CORE := $(VENV)/.installed-core
TORCH := $(shell sed -n 's/^\(torch==.*\)/\1/p' constraints.txt)
MINUTES ?= 2
# of tests: one more than there are cores of the least machine, since some wait for browsers and servers
WORKERS ?= 3
PEERS ?= build/peers
# prepared pairs of the bundled model (study/research/mix.py)
MIX ?= build/mix
BY_HAND := paired restored_text
export TEXT
# Tests start hundreds of processes, each of which would compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

$(BIN)/python:
	@found=; for python in $(PYTHON) python3.14 python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "Catchline needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3" >&2; exit 1; fi; \
	$$found -m venv $(VENV)

# What summarizing needs, without torch; whoever has what training or tests need has that too.
$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	@touch $(CORE)

$(USE): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt $(TORCH)
	$(BIN)/python -m pip install -c constraints.txt -e ".[train,serve]"
	@touch $(USE) $(CORE)

$(STAMP): pyproject.toml study/pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -c constraints.txt $(TORCH)
	$(BIN)/python -m pip install -c constraints.txt -e ".[dev,track]" -e ./study
	@touch $(STAMP) $(USE) $(CORE)

install: $(USE)  ## make .venv and install Catchline and what it needs

demo: $(CORE)  ## install the core and summarize a text; TEXT="..." is yours
	@printf '%s\n' "$${TEXT:-$$(cat examples/article.txt)}" > $(VENV)/demo.txt; cat $(VENV)/demo.txt; echo
	@$(BIN)/catchline summarize $(VENV)/demo.txt
	@echo; echo "Next: $(BIN)/catchline explain examples/article.txt, or make demo-train"

demo-train: $(USE)  ## fine-tune the bundled model on examples/pairs.jsonl for MINUTES=2, and summarize with it
	$(BIN)/catchline train oneline --data examples/pairs.jsonl --out demo/run --force --set training.max_minutes=$(MINUTES)
	$(BIN)/catchline summarize demo/run examples/article.txt

docs: | $(BIN)/python  ## the documentation site, in build/site
	$(BIN)/python -m pip install -q -c constraints.txt $(TORCH)
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[train,serve,docs]" -e ./study
	$(BIN)/python scripts/site_pages.py
	$(BIN)/zensical build -f build/mkdocs.yml --strict

model: $(STAMP)  ## train the bundled model on the pairs in MIX=FOLDER, about three hours of a core; made in build/model/oneline
	if test -d build/model/run; then $(BIN)/catchline resume build/model/run; \
	else $(BIN)/catchline train study/research/lines.yaml --data $(MIX) --out build/model/run; fi
	$(BIN)/python study/research/lines_risk.py build/model/run/model $(MIX)/train.jsonl \
		study/research/lines_judged.jsonl.xz build/model/judged
	$(BIN)/catchline export build/model/judged --out build/model/oneline --int8

wheel: | $(BIN)/python  ## dist/catchline-*.whl
	$(BIN)/python -m pip wheel -q --no-deps --wheel-dir dist .
	@ls dist/catchline-*.whl

browser: $(STAMP)  ## a browser for the tests of the page, where there is none
	@scripts/install_browser.sh $(BIN)/python || echo "No browser could be installed: the tests of the page are skipped." >&2

test: browser  ## the fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

# Kernels for other instructions add in other orders, so a claim that holds on one CPU may fail on the next.
test-cpus: browser  ## the fast tests with each set of instructions that this CPU has
	@best=$$($(BIN)/python -c 'import torch; print(torch.backends.cpu.get_cpu_capability())'); set -e; \
	tests() { echo "== ATEN_CPU_CAPABILITY=$$1"; \
	  ATEN_CPU_CAPABILITY=$$1 ONEDNN_MAX_CPU_ISA=$$2 MKL_ENABLE_INSTRUCTIONS=$$3 OMP_NUM_THREADS=1 \
	    $(BIN)/python -m pytest -n $(WORKERS); }; \
	tests default SSE41 SSE4_2; \
	case $$best in AVX2|AVX512) tests avx2 AVX2 AVX2;; esac; \
	case $$best in AVX512) tests avx512 DEFAULT AVX512;; esac

test-plain: browser  ## the fast tests with the papers' equations as they stand, without kernels
	CATCHLINE_KERNELS=off OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS)

# torch stays the one of constraints.txt, as its older builds come from another index.
test-floor: $(STAMP)  ## the parity tests with the oldest versions that pyproject.toml allows, in .venv-floor
	test -x $(FLOOR)/bin/python || $(BIN)/python -m venv $(FLOOR)
	$(FLOOR)/bin/python -m pip install $(TORCH)
	$(FLOOR)/bin/python -m pip install --only-binary :all: $$($(BIN)/python scripts/floors.py core train)
	$(FLOOR)/bin/python -m pip install -e '.[train]' pytest pytest-xdist hypothesis rouge-score sumy nltk
	OMP_NUM_THREADS=1 $(FLOOR)/bin/python -m pytest -n $(WORKERS) tests/parity

test-slow: $(STAMP)  ## the slow tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) -m slow

test-all: test-cpus test-slow  ## every test: the fast ones with each set of instructions, then the slow ones

check: $(STAMP)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)  ## every benchmark with short settings
	@for script in $(filter-out $(patsubst %,benchmarks/%.py,$(BY_HAND)),$(wildcard benchmarks/*.py)); do \
	  short=; if grep -q -e '"--short"' $$script; then short=--short; fi; \
	  echo "== $$script $$short"; $(BIN)/python $$script $$short || exit 1; \
	done

# The peers ask for other versions of what they depend on, so they are installed without it, in a folder of their own.
bench-peers: $(STAMP)  ## the benchmarks against CTranslate2 and OpenNMT-py, in full; installs these in build/peers
	test -d $(PEERS)/onmt -a -d $(PEERS)/ctranslate2 || \
	  $(BIN)/python -m pip install -q --no-deps --target $(PEERS) ctranslate2 OpenNMT-py==3.5.1
	$(BIN)/python benchmarks/train_step.py --opennmt $(PEERS)
	$(BIN)/python benchmarks/transformer_training.py
	$(BIN)/python benchmarks/transformer_decoding.py
	$(BIN)/python benchmarks/decoding_precision.py --peers $(PEERS)
	$(BIN)/python benchmarks/runtime_decoding.py --peers $(PEERS)

clean:  ## remove the environment, caches and built files
	rm -rf $(VENV) $(FLOOR) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src study tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
