"""How a recording ends when its program does: at exit, after an error, by a signal, or because no step follows."""
