"""Training: the loop, its state, checkpoints, optimizers, phases, validation and logs."""
