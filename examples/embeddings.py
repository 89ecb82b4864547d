"""How similar three sentences are, by their vectors.

    pip install openai
    python embeddings.py

The built-in model was not trained for this: use a model for embeddings, such as Qwen3-Embedding, to tell topics apart.
"""
import os

from openai import OpenAI

SENTENCES = ["The owl sat in a tall tree.", "A bird was sitting on a branch.", "The boat sailed across the sea."]

url = os.environ.get("THERMOCLINE_URL", "http://127.0.0.1:8080")
client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("THERMOCLINE_KEY", "none"))
model = client.models.list().data[0].id

vectors = [item.embedding for item in client.embeddings.create(model=model, input=SENTENCES).data]
for i in range(3):
    for j in range(i + 1, 3):
        # The vectors have length 1, so the product is the cosine of the angle between them.
        similarity = sum(a * b for a, b in zip(vectors[i], vectors[j]))
        print(f"{similarity:.3f}  {SENTENCES[i]}  {SENTENCES[j]}")
