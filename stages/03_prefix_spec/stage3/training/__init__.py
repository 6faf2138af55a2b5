"""How draft heads are made: text from the engine, training against the frozen target, and a measure of the result."""
