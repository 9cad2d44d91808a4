"""Settings: schema, recipes, tables of names. No tensor library is imported here."""
