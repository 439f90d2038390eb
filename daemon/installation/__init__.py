"""What belongs on a node that runs SGLang under systemd: written, compared and removed.

`node_files.py` says what it is, `seal.py` whether somebody has edited it, `plan.py` what is to be done, `carry_out.py`
does it.
"""
