import os
import subprocess
import sys

import litellm
import pytest
from conftest import NAME
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

ASK = [{"role": "user", "content": "Say hello."}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama_chat"])
def test_litellm(root, url, provider):
    fields = {"model": f"{provider}/{NAME}", "api_base": url if provider == "openai" else root, "api_key": "none", "messages": ASK}
    assert litellm.completion(**fields, max_tokens=10).choices[0].message.content
    assert "".join(c.choices[0].delta.content or "" for c in litellm.completion(**fields, max_tokens=10, stream=True))
    if provider != "ollama_chat":
        call, = litellm.completion(**fields, max_tokens=80, tools=[TOOL], tool_choice="required", parallel_tool_calls=False).choices[0].message.tool_calls
        assert call.function.name == "weather"


def test_llama_index(url):
    llm = OpenAILike(model=NAME, api_base=url, api_key="none", is_chat_model=True, is_function_calling_model=True, max_tokens=30)
    assert llm.chat([ChatMessage(role="user", content="Say hello.")]).message.content and llm.complete("Hello").text
    assert "".join(part.delta for part in llm.stream_chat([ChatMessage(role="user", content="Say hello.")]))


def test_llm(url, tmp_path):
    (tmp_path / "extra-openai-models.yaml").write_text(f"- model_id: mine\n  model_name: {NAME}\n  api_base: {url}\n")
    command = [sys.executable, "-m", "llm", "-m", "mine", "-o", "max_tokens", "10", "Say hello."]
    result = subprocess.run(command, env={**os.environ, "LLM_USER_PATH": str(tmp_path)}, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0 and result.stdout.strip(), result.stderr
