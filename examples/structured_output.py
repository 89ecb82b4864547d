"""An answer that is an object of a given form. The daemon enforces the JSON schema, so the answer always parses.

    pip install openai
    python structured_output.py
"""
import os
from typing import Literal

from openai import OpenAI
from pydantic import BaseModel, Field  # comes with openai


class Animal(BaseModel):
    name: str = Field(pattern="^[A-Z][a-z]{2,9}$")
    kind: Literal["owl", "fox", "frog", "whale"]
    age: int = Field(ge=1, le=30)


url = os.environ.get("THERMOCLINE_URL", "http://127.0.0.1:8080")
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("THERMOCLINE_KEY", "none"))
model = client.models.list().data[0].id

completion = client.chat.completions.parse(
    model=model, messages=[{"role": "user", "content": "Invent an animal for a story."}], max_tokens=200, response_format=Animal)
animal = completion.choices[0].message.parsed
print(f"name: {animal.name}, kind: {animal.kind}, age: {animal.age}")
