"""A chat with the official OpenAI client. The answer is printed while it is generated.

    pip install openai
    python chat.py "Tell me a story about a boat."
"""
import os
import sys

from openai import OpenAI

url = os.environ.get("THERMOCLINE_URL", "http://127.0.0.1:8080")
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("THERMOCLINE_KEY", "none"))
model = client.models.list().data[0].id  # a daemon serves one model
question = " ".join(sys.argv[1:]) or "Tell me a story about an owl."

stream = client.chat.completions.create(
    model=model, messages=[{"role": "user", "content": question}], max_tokens=300, stream=True, stream_options={"include_usage": True})
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
    if chunk.usage:
        print(f"\n\n{model}: {chunk.usage.prompt_tokens} tokens in the prompt, {chunk.usage.completion_tokens} in the answer")
