"""Where a step's time goes: parts, phases, memory, floating-point work, the cost of recording."""
