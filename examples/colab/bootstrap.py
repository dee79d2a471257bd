# On Colab or Kaggle this installs the course, which takes some minutes. Where it is installed this does nothing.
import importlib.util
import os
import subprocess
import sys

COURSE = "cutetut[course] @ git+https://github.com/cutetut/cutetut"
if importlib.util.find_spec("cutetut") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", COURSE], check=True)
    importlib.invalidate_caches()
if "google.colab" in sys.modules:
    from google.colab import output

    output.enable_custom_widget_manager()  # else no widget of ours is shown
    os.environ.setdefault("CUTETUT_BACKEND", "emulator")  # Colab has no Hopper GPU
