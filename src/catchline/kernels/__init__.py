"""The papers' equations made fast, with their gradients written out. `catchline.kernels.dispatch` chooses."""
