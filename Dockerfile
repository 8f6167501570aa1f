# The same steps as on a plain machine: docker build -t poseidon . && docker run --rm poseidon --help
# For the demo: docker run --rm --entrypoint make poseidon demo
FROM debian:12
WORKDIR /src/poseidon
COPY . .
RUN ./install.sh
ENTRYPOINT ["poseidon"]
