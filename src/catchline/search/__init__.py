"""Beam search over a step function; with a beam of one it is greedy decoding."""
