"""Beam search and greedy decoding over a step function."""
