"""Attention mechanisms, one a file. Names: `laconic.config.names.ATTENTIONS`."""
