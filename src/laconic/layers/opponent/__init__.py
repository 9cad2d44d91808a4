"""The contrastive attention mechanism. Names: `laconic.config.names.OPPONENTS`."""
