"""The agent's side of the warm interpreters that workers are forked from; `warm/` is what runs in them."""
