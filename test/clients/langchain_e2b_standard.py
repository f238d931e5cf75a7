"""langchain-e2b: LangChain's own standard tests of sandboxes, all of them."""

import os
import sys
import tempfile

import pytest

TESTS = '''
import pytest
from e2b import Sandbox
from langchain_e2b import E2BSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests


class TestStandard(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        sandbox = Sandbox.create(timeout=600)
        try:
            yield E2BSandbox(sandbox=sandbox)
        finally:
            sandbox.kill()
'''

with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "test_standard.py"), "w", encoding="utf-8") as f:
        f.write(TESTS)
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--asyncio-mode=auto", "--tb=line", folder]))
