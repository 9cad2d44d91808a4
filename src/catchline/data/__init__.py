"""Data: readers, column detection, checks, corpora, encoding, collation and sampling."""
