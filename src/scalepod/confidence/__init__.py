"""How far the numbers of an analysis can be believed: errors, convergence, held-out energy, a null."""
