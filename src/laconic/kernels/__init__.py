"""The papers' equations made fast, with their gradients written out. `laconic.kernels.dispatch` chooses."""
