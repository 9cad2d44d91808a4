"""Neural building blocks: modules hold parameters, equations are pure functions of tensors."""
