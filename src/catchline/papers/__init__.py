"""The papers' equations: one file a paper, pure functions of tensors in its order, plain torch and nothing of ours."""
