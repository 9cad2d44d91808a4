"""Corpora made of what is on this machine: docstrings, descriptions of Debian packages."""
