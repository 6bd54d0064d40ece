"""Ends without a traceback on stderr; only torch's `@record` has written down what happened."""

import os

import torch.distributed
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main() -> None:
    print("launched by torchelastic:", torch.distributed.is_torchelastic_launched(), flush=True)
    raise ValueError("kept only in the error file")


try:
    main()
except ValueError:
    os._exit(9)
