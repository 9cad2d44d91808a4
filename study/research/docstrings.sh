#!/bin/sh
# The docstring corpus of the model in the box: downloads the packages of docstring_packages.txt as wheels, which neither
# installs them nor runs their code, and reads them. What is there already is not downloaded again.
#
#   study/research/docstrings.sh FOLDER [catchline]     -> FOLDER/archives, FOLDER/train.jsonl, validation.jsonl, stats.json
set -eu
folder=${1:?name the folder to write}
catchline=${2:-catchline}
python=${PYTHON:-python3}
mkdir -p "$folder/archives"
for name in $(sed 's/#.*//' "$(dirname "$0")/docstring_packages.txt"); do
  file=$(printf %s "$name" | tr -- - _)
  ls "$folder/archives" | grep -qi "^$file-[0-9]" ||
    "$python" -m pip download --quiet --no-deps --only-binary=:all: --dest "$folder/archives" "$name" ||
    echo "$name could not be downloaded: the corpus is made without it." >&2
done
"$catchline" data docstrings "$folder" --archives "$folder/archives" --validation 1000
