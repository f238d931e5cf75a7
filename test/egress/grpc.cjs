// A gRPC-like server for the stand-in internet: HTTP/2 over TLS, every message is sent back, the status
// comes in a trailer.   node grpc.cjs PORT CERT KEY
'use strict';
const fs = require('fs');
const [port, cert, key] = process.argv.slice(2);
const server = require('http2').createSecureServer({ cert: fs.readFileSync(cert), key: fs.readFileSync(key) });

server.on('stream', (stream, headers) => {
    const parts = [];
    stream.on('error', () => {});
    stream.on('data', (part) => parts.push(part));
    stream.on('end', () => {
        stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'x-path': headers[':path'],
            'x-authority': headers[':authority'] }, { waitForTrailers: true });
        stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
        stream.end(Buffer.concat(parts));
    });
});
server.listen(Number(port), '::', () => console.log('ready'));
