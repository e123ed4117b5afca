"""Ways of sorting on CPUs: networks for short rows, digits for long ones."""
