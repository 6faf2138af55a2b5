// The playground: a form, a streamed answer, and its speed. All text goes through textContent: none of it is markup.

import { errorOf, readEvents } from "./sse.js";

const byId = (id) => document.getElementById(id);
const NUMBERS = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "presence_penalty",
  "frequency_penalty", "n"];
const conversation = []; // of the chat: {role, content}
let running = null; // AbortController of the request in flight

const isChat = () => document.querySelector("input[name=mode]:checked").value === "chat";

function element(tag, className, text) {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

/** What the form asks for. Empty fields are left out, so that the server's defaults hold. */
function requestBody(prompt) {
  const body = { stream: true, stream_options: { include_usage: true }, return_token_ids: true };
  for (const id of NUMBERS) {
    const value = byId(id).value.trim();
    if (value !== "") body[id] = Number(value);
  }
  if (byId("stop").value !== "") body.stop = byId("stop").value;
  if (byId("ignore_eos").checked) body.ignore_eos = true;
  return isChat() ? { ...body, messages: [...conversation, { role: "user", content: prompt }] } : { ...body, prompt };
}

function showError(message) {
  byId("error").textContent = message;
  byId("error").hidden = false;
}

/** Shows the pieces of one answer and measures them as a client sees them. */
class Answer {
  constructor(output, given) {
    this.output = output;
    this.given = given;
    this.copies = new Map(); // choice index → its element
    this.texts = new Map();
    this.began = performance.now();
    this.first = null;
    this.last = null;
    this.tokens = 0;
    this.atFirst = 0; // tokens that came with the first piece
  }

  add(chunk) {
    for (const choice of chunk.choices) {
      const ids = choice.token_ids ?? [];
      const text = choice.text ?? choice.delta?.content ?? "";
      if (ids.length > 0) this.clock(ids.length);
      if (text !== "") this.show(choice.index, text);
      if (choice.finish_reason) byId("reason").textContent = reasonText(choice);
    }
    if (chunk.usage) this.tokens = chunk.usage.completion_tokens;
    this.report();
  }

  clock(numTokens) {
    this.last = performance.now();
    this.tokens += numTokens;
    if (this.first === null) {
      this.first = this.last;
      this.atFirst = numTokens;
    }
  }

  show(index, text) {
    let copy = this.copies.get(index);
    if (copy === undefined) {
      copy = element("div", "copy", "");
      copy.append(element("b", "given", this.given));
      this.copies.set(index, copy);
      this.output.append(copy);
    }
    const atEnd = this.output.scrollHeight - this.output.scrollTop - this.output.clientHeight < 40;
    copy.append(element("span", "token", text));
    this.texts.set(index, (this.texts.get(index) ?? "") + text);
    if (atEnd) this.output.scrollTop = this.output.scrollHeight;
  }

  report() {
    if (this.first === null) return;
    byId("ttft").textContent = `${Math.round(this.first - this.began).toLocaleString("en")} ms`;
    byId("count").textContent = this.tokens.toLocaleString("en");
    const seconds = (this.last - this.first) / 1000;
    if (seconds > 0) byId("speed").textContent = ((this.tokens - this.atFirst) / seconds).toFixed(1);
  }
}

function reasonText(choice) {
  if (choice.finish_reason === "length") return "length";
  if (choice.stop_reason === null || choice.stop_reason === undefined) return choice.finish_reason;
  return `${choice.finish_reason} (${JSON.stringify(choice.stop_reason)})`;
}

async function generate() {
  const prompt = byId("prompt").value;
  const chat = isChat();
  const output = byId("output");
  output.replaceChildren();
  byId("error").hidden = true;
  for (const id of ["ttft", "speed", "count", "reason"]) byId(id).textContent = "–";
  setRunning(new AbortController());
  const answer = new Answer(output, chat ? "" : prompt);
  try {
    await stream(chat ? "/v1/chat/completions" : "/v1/completions", requestBody(prompt), answer);
    byId("announce").textContent = `done: ${answer.tokens} tokens`;
  } catch (error) {
    if (error.name === "AbortError") {
      byId("reason").textContent = "you";
      byId("announce").textContent = "stopped";
    } else {
      showError(error instanceof TypeError ? `the connection to the server failed (${error.message})` : error.message);
    }
  } finally {
    if (chat && answer.texts.has(0)) remember(prompt, answer.texts.get(0));
    setRunning(null);
  }
}

async function stream(path, body, answer) {
  const headers = { "Content-Type": "application/json" };
  const key = byId("api_key").value;
  if (key !== "") headers.Authorization = `Bearer ${key}`;
  byId("announce").textContent = "generating";
  const response = await fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal: running.signal });
  if (!response.ok) throw new Error(await errorOf(response));
  for await (const chunk of readEvents(response.body)) {
    if (chunk.error) throw new Error(chunk.error.message);
    answer.add(chunk);
  }
}

function setRunning(controller) {
  running = controller;
  byId("generate").disabled = controller !== null;
  byId("stop_button").disabled = controller === null;
}

/** A turn is over: it moves from the output into the conversation. */
function remember(prompt, reply) {
  conversation.push({ role: "user", content: prompt }, { role: "assistant", content: reply });
  byId("history").append(element("div", "bubble user", prompt), element("div", "bubble", reply));
  byId("history").scrollTop = byId("history").scrollHeight;
  byId("output").replaceChildren();
  byId("prompt").value = "";
  byId("prompt").focus();
}

function clear() {
  running?.abort();
  conversation.length = 0;
  byId("history").replaceChildren();
  byId("output").replaceChildren();
  byId("error").hidden = true;
}

function switchMode() {
  byId("history").hidden = !isChat();
  const prompt = byId("prompt");
  const samples = ["1, 2, 3, 4, 5,", "What is 2+2?"];
  if (prompt.value === samples[isChat() ? 0 : 1]) prompt.value = samples[isChat() ? 1 : 0];
}

/** Which stage and model run, and whose parts: asked again now and then, because the engine may die. */
async function refreshStatus() {
  const health = byId("health");
  try {
    const status = await (await fetch("/status")).json();
    byId("about").textContent = `stage ${status.stage} · ${status.model} · up to ${status.max_model_len.toLocaleString("en")} tokens`;
    document.title = `Sixfold · stage ${status.stage}`;
    byId("parts").replaceChildren(
      ...status.parts.map((part) => element("li", part.source === "yours" ? "yours" : "", `${part.name}: ${part.source}`)),
    );
    health.textContent = status.dead === null ? "engine up" : `engine stopped: ${status.dead}`;
    health.className = `health ${status.dead === null ? "up" : "down"}`;
  } catch {
    health.textContent = "server not reachable";
    health.className = "health down";
  }
}

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running === null) generate();
});
byId("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("form").requestSubmit();
});
byId("stop_button").addEventListener("click", () => running?.abort());
byId("clear").addEventListener("click", clear);
byId("show_tokens").addEventListener("change", (event) => byId("output").classList.toggle("tinted", event.target.checked));
for (const radio of document.querySelectorAll("input[name=mode]")) radio.addEventListener("change", switchMode);
refreshStatus();
switchMode();
setInterval(refreshStatus, 5000);
