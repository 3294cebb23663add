"""The training program of a task: the built-in GPT, or a program of the user.

Begin with ``loop``, the contract between a program and the training loop. ``program_loading``
finds, calls and checks a program. ``option_table`` says which options of Megatron recover in
process. ``dataset_building`` lets Megatron's dataset builder run without peers.
"""
