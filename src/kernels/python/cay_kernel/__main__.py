"""python3 -m cay_kernel -f CONNECTION_FILE: ipykernel with cay's settings."""

from ipykernel.kernelapp import IPKernelApp
from traitlets.config import Config

from . import descriptors


def main():
    config = Config()
    config.InteractiveShell.colors = "NoColor"  # clients get tracebacks as text
    config.InteractiveShellApp.extensions = ["cay_kernel"]
    config.PlainTextFormatter.max_seq_length = 0  # long lists whole
    config.HistoryManager.enabled = False  # no file that grows; Out and In stay
    descriptors.prepare()
    IPKernelApp.launch_instance(config=config)


main()
