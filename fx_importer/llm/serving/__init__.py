"""A server of an imported language model on HTTP, with the API of OpenAI: ``fx-importer llm serve``."""
