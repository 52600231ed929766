"""Priority and fairness: whoever asks for much waits for his turn, and is not in the way of the others."""
