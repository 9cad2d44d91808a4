"""Decoding and scoring data sets, and comparing systems on them."""
