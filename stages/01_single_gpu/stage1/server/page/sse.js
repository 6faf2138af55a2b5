// Server-sent events out of a fetched body. Knows the framing, not what the events mean.

/** The objects of a stream of `data: {json}` events, until `[DONE]` or its end. Pieces may be cut anywhere. */
export async function* readEvents(body) {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      const blocks = rest.split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const data = dataOf(block);
        if (data === "[DONE]") return;
        if (data !== "") yield JSON.parse(data);
      }
      if (done) return;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

function dataOf(block) {
  return block
    .split("\n")
    .filter((line) => line.startsWith("data:"))
    .map((line) => line.slice(5).trimStart())
    .join("\n");
}

/** What went wrong, in words, out of an answer that is not 2xx. */
export async function errorOf(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    if (typeof error === "string") return `${error}: ${response.status === 401 ? "give the API key under More" : text}`;
    return error.message;
  } catch {
    return `the server answered ${response.status} ${response.statusText}`;
  }
}
