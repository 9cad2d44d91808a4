#!/bin/sh
# The docstring corpus of the bundled model: installs the packages of docstring_packages.txt as wheels into a folder of
# their own, which runs none of their code, and reads them. What is there already is not installed again.
#
#   study/research/docstrings.sh FOLDER [catchline]     -> FOLDER/packages, FOLDER/train.jsonl, validation.jsonl, stats.json
set -eu
folder=${1:?name the folder to write}
catchline=${2:-catchline}
python=${PYTHON:-python3}
for name in $(sed 's/#.*//' "$(dirname "$0")/docstring_packages.txt"); do
  file=$(printf %s "$name" | tr -- - _)
  ls "$folder/packages" 2>/dev/null | grep -qi "^$file-[0-9].*dist-info" ||
    "$python" -m pip install --quiet --no-deps --no-compile --only-binary=:all: --target "$folder/packages" "$name" ||
    echo "$name could not be installed: the corpus is made without it." >&2
done
"$catchline" data docstrings "$folder" --root "$folder/packages" --permissive --validation 1000
