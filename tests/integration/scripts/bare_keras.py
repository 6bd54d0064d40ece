"""Imported before TensorFlow: Keras imports these packages where they are installed, and no script here uses them.

Of the 6 seconds of a processor that `import tensorflow` takes beside them, they are more than two.
"""

import sys

sys.modules.update(dict.fromkeys(("jax", "matplotlib", "pandas", "sklearn")))
