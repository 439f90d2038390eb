"""The real SGLang on a machine without a GPU: environments, a model, a server, traffic."""
