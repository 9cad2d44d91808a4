"""Spans of running text for pre-training: scoring, exact selection of the best, shards of pairs."""
