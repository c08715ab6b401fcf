"""How notifications reach those whom they are for."""
