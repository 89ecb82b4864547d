"""A tool, from the model's call to its answer: the model asks for a function, this program runs it and sends the result back.

    pip install openai
    python tools.py

Small models seldom call a tool by themselves, so the first turn requires a call. With a larger model, begin with "auto".
"""
import json
import os

from openai import OpenAI

url = os.environ.get("THERMOCLINE_URL", "http://127.0.0.1:8080")
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("THERMOCLINE_KEY", "none"))
model = client.models.list().data[0].id


def get_weather(city):
    return {"city": city, "celsius": 21, "sky": "clear"}  # a real program would look it up


TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo", "Lima"]}}, "required": ["city"]}}}]

messages = [{"role": "user", "content": "What is the weather in Rome?"}]
choice = "required"
for turn in range(4):  # a model may call more than once
    answer = client.chat.completions.create(
        model=model, messages=messages, tools=TOOLS, tool_choice=choice, parallel_tool_calls=False, max_tokens=100)
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        print("answer:", message.content)
        break
    for call in message.tool_calls:
        arguments = json.loads(call.function.arguments)
        result = get_weather(**arguments)
        print(f"call: {call.function.name}({arguments}) -> {result}")
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
    choice = "auto"  # from here on the model decides
