"""JSON Schema: checked by jsonschema, compared by what one schema accepts and another writes."""
