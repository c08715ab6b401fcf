"""How notes reach those whom they are for."""
