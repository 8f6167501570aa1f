// SPDX-License-Identifier: Apache-2.0
// `poseidon partition_data`: one database dealt out to several, as Poseidon-Caffe's tool of that name.
#include <iostream>
#include <memory>
#include <string>

#include "frontends/caffe/data/partition.h"
#include "tools/console/fail.h"
#include "tools/console/values.h"
#include "tools/train/commands.h"
#include "tools/train/database_flags.h"

namespace poseidon::tools {

void AddPartitionData(CLI::App& app) {
  struct Flags {
    std::string database, backend;
    int parts = 2;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* c = app.add_subcommand("partition_data", "Deal a database's records out to several databases");
  c->footer("  poseidon partition_data --num_partitions 4 train_lmdb");
  c->add_option("database", flags->database, "LMDB or LevelDB; the parts are beside it, with _0, _1 and so on behind its name")->required();
  AddReadBackendFlag(*c, flags->backend);
  c->add_option("--num_partitions", flags->parts, "Number of parts")->type_name("N")->check(WholeNumber(1, 1 << 20));
  c->callback([flags] {
    const std::unique_ptr<caffe::RecordSource> records = OpenDatabase(flags->database, flags->backend);
    OrFail(caffe::Partition(records.get(), OrFail(caffe::DatabaseIn(flags->database)), flags->parts));
    std::cout << records->size() << " records of " << flags->database << " in " << flags->parts << " parts" << std::endl;
  });
}

}  // namespace poseidon::tools
