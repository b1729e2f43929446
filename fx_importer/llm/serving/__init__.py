"""An HTTP server with the OpenAI API for an imported language model: ``fx-importer llm serve``."""
