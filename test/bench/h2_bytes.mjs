// A server of HTTP/2 and HTTP/1.1 over TLS that answers /BYTES with so many, and PUT with how many it read.
//   node h2_bytes.mjs ADDRESS PORT CERT KEY
import { readFileSync } from "node:fs";
import { createSecureServer } from "node:http2";

const [address, port, cert, key] = process.argv.slice(2);
const chunk = Buffer.alloc(1 << 20, 0x61);
const server = createSecureServer({
  cert: readFileSync(cert), key: readFileSync(key), allowHTTP1: true,
  settings: { initialWindowSize: 32 << 20 },
}, (request, response) => {
  if (request.method === "PUT") {
    let n = 0;
    request.on("data", (d) => { n += d.length; });
    request.on("end", () => response.end(`${n}\n`));
    return;
  }
  let left = Number(request.url.slice(1));
  response.setHeader("content-length", left);
  const more = () => {
    while (left > 0) {
      const n = Math.min(left, chunk.length);
      left -= n;
      if (!response.write(n === chunk.length ? chunk : chunk.subarray(0, n))) return;
    }
    response.end();
  };
  response.on("drain", more);
  more();
});
server.on("session", (s) => s.setLocalWindowSize?.(32 << 20));
server.listen(Number(port), address, () => console.log("ready"));
