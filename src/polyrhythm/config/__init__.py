"""The configuration language. Only here do names in text become things."""
