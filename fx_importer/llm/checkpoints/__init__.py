"""Files of weights: folders of Hugging Face, GGUF, GPTQ and AWQ, LoRA adapters; and weights that stay packed."""
